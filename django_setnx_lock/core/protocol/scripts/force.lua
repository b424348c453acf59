-- Take the lock from the holder that the operator saw, and tell that one by whom and why.
-- ARGV  1 token seen  2 by whom and why (JSON)  3 '', or unless more than so many ms are left of its lease
-- Reply {'OK', whom it is given to, or false}  {'CHANGED'} somebody else holds it by now  {'FREE'} nobody does
--       {'RENEWED'} more is left
--- lib
local value, group = standing()
if #token == 65536 and type(value) == 'string' and string.sub(value, 1, 65536) == token then
  token = value -- what is not ours may be longer, and was seen as far as that
end
local most = tonumber(ARGV[3])
if most and (value == token or group) and lease_left(group, token) > most then
  return {'RENEWED'}
end
local was_held
was_held, value, group = drop(token)
if not was_held then
  -- This may have been sent twice.
  local is_done = redis.call('HGET', BESIDE .. 'forced', token) == ARGV[2]
  return {is_done and 'OK' or value and 'CHANGED' or 'FREE', false}
end
leave_queue(token)
redis.call('HSET', BESIDE .. 'forced', token, ARGV[2])
redis.call('PEXPIRE', BESIDE .. 'forced', MEMORY)
refuse(token)
local given = (not value or group) and admit(value, group) or group and rouse(redis.call('PTTL', NAME)) or false
if INDEX and not value and not given then
  redis.pcall('ZREM', INDEX, NAME)
end
return {'OK', given}
