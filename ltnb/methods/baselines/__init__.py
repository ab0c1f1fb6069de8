"""The usual baselines of long-tailed recognition, one paper a file; each is a choice for the slots that all share."""
