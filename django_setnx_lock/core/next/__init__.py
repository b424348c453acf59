"""The lock itself, written anew beside the core in use; tests take it with SETNX_CORE=next."""
