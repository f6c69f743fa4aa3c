"""The rewrite rules, which register themselves. There is no list to edit: `_table` is made from them."""
