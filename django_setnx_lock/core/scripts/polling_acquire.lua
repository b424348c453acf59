-- Take the lock as acquire.lua does, for one who neither queues nor wakes anybody.
-- This and the other scripts of this kind name every key as one of KEYS, where it is used: there are servers that
-- let a script touch no other key, and some that look for that in its text.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token  2 lease ms  3 holder record  4 ms until the caller asks again at the latest (0: this caller
--       does not wait, or no longer)
-- Reply {'OK', fence}
--       {'BUSY', ms left (-1: never expires), 'foreign', holder record or false}  (foreign also when it is one of
--       ours: nobody is woken)
--       {'GONE'}  this token was released, given up or forced out before
-- Error WRONGTYPE when the name holds no string
--- reading
local token, lease, waits = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4]) > 0
local value, is_gone = redis.call('GET', KEYS[1]), redis.call('EXISTS', KEYS[3]) == 1
-- Who does not wait is told of the holder all the same, should the first answer have been lost.
if is_gone and (waits or not value or value == token) then
  return {'GONE'}
end
local fence, owner, holder = read_meta(redis.call('GET', KEYS[2]))
local time, left = redis.call('TIME'), redis.call('PTTL', KEYS[1])
local now_us = time[1] * 1000000 + time[2]
local now_ms = math.floor(now_us / 1000)

if value and value ~= token then
  if not waits and not is_gone then
    -- Given up here and now: a copy of this request that is still on the wire must not take the lock.
    redis.call('SET', KEYS[3], 'left', 'PX', MEMORY)
  end
  local is_ours = owner == value or owner == POLLING .. value
  if KEYS[4] and not is_ours and not baton_for(value) then
    -- One that never expires is listed for a day since it was last met.
    redis.call('ZADD', KEYS[4], whole(now_ms + (left < 0 and 86400000 or left)), KEYS[1])
  end
  return {'BUSY', left, 'foreign', is_ours and holder}
end

local noted = POLLING .. token
if value then
  -- Mine already: the reply to an earlier copy of this request was lost. The lease starts anew,
  -- but is not cut: this copy may be a late one, of a lock that was extended since.
  lease = math.max(lease, left)
end
if not value or owner ~= noted then
  fence, holder = math.max(now_us, (fence or 0) + 1), ARGV[3]
end
redis.call('SET', KEYS[2], table.concat({whole(fence), #noted, noted, holder}, ' '),
  'PX', whole(math.max(lease + META_MARGIN, redis.call('PTTL', KEYS[2]))))
if KEYS[4] then
  redis.call('ZADD', KEYS[4], whole(now_ms + lease), KEYS[1])
  -- What nobody released is forgotten, by one in a hundred; who lacks the right for it goes on.
  if now_us % 100 == 0 then
    redis.pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', whole(now_ms - META_MARGIN))
  end
end
-- The lock itself comes last: an error above leaves none behind.
redis.call('SET', KEYS[1], token, 'PX', whole(lease))
return {'OK', whole(fence)}
