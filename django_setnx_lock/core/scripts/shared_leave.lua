-- Give up an acquire whose outcome is unknown or no longer wanted. A copy still on the wire will be refused.
-- KEYS  1 name  2 waiters  3 alive  4 gone (this token's)  5 meta  6 shares  7 holders  [8 index]
-- ARGV  1 token
-- Reply {'OK', waiter that something was left to, or false}
--- prelude
--- shared
local token = ARGV[1]
local value, group = standing(token_at(KEYS[1]))
-- Deletes first: they are allowed, and make the SET allowed, on a server that is out of memory.
if value == BATON .. token or value == token then
  redis.call('DEL', KEYS[1])
  value = false
end
if group then
  redis.call('ZREM', KEYS[6], token, BATON .. token)
  redis.call('HDEL', KEYS[7], token)
end
leave_queue(token)
redis.call('DEL', mailbox(token))
redis.call('SET', KEYS[4], 'left', 'PX', MEMORY)
if group then
  -- It was perhaps the one that asked again soon.
  rouse(group)
end
-- Also when it only queued: those behind it may perhaps join the group.
return {'OK', (group or not value) and go_on(value) or left_to(value)}
