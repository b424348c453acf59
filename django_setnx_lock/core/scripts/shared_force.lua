-- Take their shares away from those holders whom the operator saw, and from nobody else.
-- KEYS  1 name  2 waiters  3 alive  4 gone (the first of those holders')  5 meta  6 shares  7 holders  [8 index]
-- ARGV  1 who and why (JSON)  2... tokens seen
-- Reply {'OK', waiter that something was left to, or false}  {'CHANGED'} none of them has it  {'FREE'} nobody has it
--- prelude
--- shared
if redis.call('GET', KEYS[4]) == ARGV[1] then
  -- Done before: the reply to an earlier copy of this request was lost.
  return {'OK', left_to(token_at(KEYS[1]))}
end
local value, group = standing(token_at(KEYS[1]))
if not value then
  return {'FREE'}
end
local is_found = false
for number = 2, #ARGV do
  local token = ARGV[number]
  local ends = group and redis.call('ZSCORE', KEYS[6], token)
  if ends then
    is_found = true
    redis.call('ZREM', KEYS[6], token)
    redis.call('HDEL', KEYS[7], token)
    -- Remembered until the holder must have learned it: its lease would have ended by then.
    redis.call('SET', string.sub(KEYS[2], 1, -8) .. 'gone:' .. token, ARGV[1],
      'PX', whole(math.max(ends - now_ms(), MEMORY)))
  end
end
if not is_found then
  return {'CHANGED'}
end
return {'OK', go_on(value)}
