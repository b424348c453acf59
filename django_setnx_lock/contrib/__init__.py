"""What goes with other packages."""
