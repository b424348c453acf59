-- Take the share away from the holder whom the operator saw, and from nobody else.
-- ARGV  1 who and why (JSON)  2 token seen  3 how many ms may be left of its lease, or ''
-- Reply {'OK', waiter that something was left to, or false}  {'RENEWED'} more is left of the lease
--       {'CHANGED'} it does not have it  {'FREE'} nobody has it
--- shared_keys
--- prelude
--- shared
if redis.pcall('GET', TOMBSTONE) == ARGV[1] then
  -- Done before: the reply to an earlier copy of this request was lost.
  return {'OK', left_to(token_at(NAME))}
end
local value, group = standing(token_at(NAME))
if not value then
  return {'FREE'}
end
local token = ARGV[2]
local ends = group and redis.call('ZSCORE', SHARES, token)
if not ends then
  return {'CHANGED'}
end
local left = ends - now_ms()
if ARGV[3] ~= '' and left > tonumber(ARGV[3]) then
  return {'RENEWED'}
end
redis.call('ZREM', SHARES, token)
redis.call('HDEL', HOLDERS, token)
-- Remembered until the holder must have learned it: its lease would have ended by then.
redis.call('SET', TOMBSTONE, ARGV[1], 'PX', whole(math.max(left, MEMORY)))
-- Taken it is, whatever a key beside it may be: else nobody could tell that it was.
local has_gone_on, reply = pcall(function()
  return {'OK', go_on(value)}
end)
return has_gone_on and reply or {'OK', false}
