"""The requests and replies of the scripts. Nothing here sends, waits or reads a clock."""
