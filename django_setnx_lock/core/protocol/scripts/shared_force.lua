-- Take their shares away from those holders whom the operator saw, and from nobody else.
-- ARGV  1 who and why (JSON)  2... tokens seen
-- Reply {'OK', waiter that something was left to, or false}  {'CHANGED'} none of them has it  {'FREE'} nobody has it
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
local is_found = false
for number = 2, #ARGV do
  local token = ARGV[number]
  local ends = group and redis.call('ZSCORE', SHARES, token)
  if ends then
    is_found = true
    note_share('forced', token, ARGV[1])
    redis.call('ZREM', SHARES, token)
    redis.call('HDEL', HOLDERS, token)
    -- Remembered until the holder must have learned it: its lease would have ended by then.
    redis.call('SET', beside('gone:', token), ARGV[1],
      'PX', whole(math.max(ends - now_ms(), MEMORY)))
  end
end
if not is_found then
  return {'CHANGED'}
end
-- Taken they are, whatever a key beside them may be: else nobody could tell that they were.
local has_gone_on, reply = pcall(function()
  return {'OK', go_on(value)}
end)
return has_gone_on and reply or {'OK', false}
