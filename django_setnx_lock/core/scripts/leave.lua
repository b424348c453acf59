-- Give up an acquire whose outcome is unknown or no longer wanted: out of the queue, and on with the
-- lock if it was given to this token meanwhile. A copy still on the wire will be refused.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  [5 index]
-- ARGV  1 token
-- Reply {'OK', waiter that the lock is handed to, or false}
--- prelude
local token = ARGV[1]
local value = token_at(KEYS[1])
local head = baton_for(value)
local given = value == token or head == token
-- Deletes first: they are allowed, and make the SET allowed, on a server that is out of memory.
if given then
  redis.call('DEL', KEYS[1])
end
leave_queue(token)
redis.call('DEL', mailbox(token))
redis.call('SET', KEYS[4], 'left', 'PX', MEMORY)
if given or not value then
  head = hand_on()
end
if KEYS[5] and given and not head then
  redis.call('ZREM', KEYS[5], KEYS[1])
end
return {'OK', head or false}
