"""Cases of operators, the specification of the operator set, and scalar definitions of its operators."""
