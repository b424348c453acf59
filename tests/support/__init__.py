"""What tests of several folders have at hand."""
