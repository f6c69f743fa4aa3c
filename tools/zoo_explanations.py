"""Reasons why networks of the zoo miss a limit, by the name of the network. `zoo_page` prints them."""

EXPLANATIONS: dict[str, str] = {}
