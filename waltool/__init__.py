"""waltool: the operators' command for a log on disk.

A command is a small module in `waltool.commands`, named in the table of `waltool.cli` and imported when it is called.
It stands on four parts: `source` opens a log of any format, `filters` picks records, `output` shows them to people
and to programs, `command` gives every command the same options, errors and exit codes.
"""
