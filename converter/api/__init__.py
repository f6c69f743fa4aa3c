"""Public functions of the commands, one module per command. The modules of ``cli`` parse options and call them."""
