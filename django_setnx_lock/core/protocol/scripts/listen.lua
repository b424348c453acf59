-- Before a thread listens at its mailbox: it is awake no longer, unless mail lies there.
-- KEYS  1 mailbox  2 the mark that somebody of that mailbox is awake
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
end
