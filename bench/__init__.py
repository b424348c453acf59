"""Redis locks of several Python libraries, measured side by side: ``python -m bench``."""
