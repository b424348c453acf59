-- Give up an acquire whose outcome is unknown or no longer wanted: out of the queue, and on with the
-- lock if it was given to this token meanwhile. A copy still on the wire will be refused.
-- ARGV  1 token  2 'once' where no copy of a request of this token can be under way, else ''
-- Reply {'OK', waiter that the lock is handed to, or false}
--- keys
--- prelude
local token = ARGV[1]
local value = token_at(NAME)
local head = baton_for(value)
local given = value == token or head == token
-- Deletes first: they are allowed, and make the SET allowed, on a server that is out of memory.
if given then
  redis.call('DEL', NAME)
end
if value == token then
  let_go(token)
end
leave_queue(token)
drop_mail(token)
if ARGV[2] ~= 'once' then
  redis.call('SET', TOMBSTONE, 'left', 'PX', MEMORY)
end
if given or not value then
  head = hand_on()
end
if INDEX and given and not head then
  redis.call('ZREM', INDEX, NAME)
end
return {'OK', head or false}
