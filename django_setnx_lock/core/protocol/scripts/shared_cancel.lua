-- Give up an acquire whose outcome is unknown or no longer wanted. A copy still on the wire will be refused.
-- ARGV  1 token  2 'once' or '', as of cancel.lua
-- Reply {'OK', waiter that something was left to, or false}
--- shared_keys
--- prelude
--- shared
local token = ARGV[1]
local value, group = standing(token_at(NAME))
-- Deletes first: they are allowed, and make the SET allowed, on a server that is out of memory.
if value == BATON .. token then
  redis.call('DEL', NAME)
  value = false
end
if group then
  redis.call('ZREM', SHARES, token, BATON .. token)
  redis.call('HDEL', HOLDERS, token)
end
leave_queue(token)
drop_mail(token)
if ARGV[2] ~= 'once' then
  redis.call('SET', TOMBSTONE, 'left', 'PX', MEMORY)
end
if group then
  -- It was perhaps the one that asked again soon.
  rouse(group)
end
-- Also when it only queued: those behind it may perhaps join the group.
return {'OK', (group or not value) and go_on(value) or left_to(value)}
