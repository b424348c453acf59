-- Put first where a script says so: every script of a lock with a queue gets the same keys in the same order.
-- KEYS  1 name of the lock  2 its waiters  3 what is known of each of them  4 tombstone of the token in question
--       5 meta: fence, token and holder record  [6 index of all that are held]
local NAME, WAITERS, ALIVE, TOMBSTONE, META, INDEX = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
--- letting_go
