"""The Lua scripts, one file an operation, headed by keys, arguments and replies.

``--- lib`` in one stands for lib.lua.
"""
