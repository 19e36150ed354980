"""One module a command; `waltool.cli` has the table of them."""
