"""What the commands `sirius` and `waltool` share: how they fail, and how they find their sub-commands."""
