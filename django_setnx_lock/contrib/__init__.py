"""What the lock does together with other parts of a project; each module is used if imported."""
