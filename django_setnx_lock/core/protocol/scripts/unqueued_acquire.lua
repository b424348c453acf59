-- Take the lock: SETNX, or GETSET where what stands there is over; in one step, so that nobody comes between
-- reading and replacing it.
-- ARGV  1 token  2 lease ms  3 holder record  4 ms until the caller asks again at the latest (0: this caller does
--       not wait, or no longer; -1: nor can a copy of a request be under way)
--       5 and 6 of a timestamp: its unit, 's' or 'ms', and '1' if Redis is to remove the value a second after it is over, else '0'
-- Reply {'OK', fence}
--       {'BUSY', ms left (-1: never expires), 'foreign', holder record or false}
--       {'GONE'}  this token was released, given up or forced out before
-- Error WRONGTYPE when the name holds no string, or no time in that unit
--- unqueued
local ENDLESS = 86400000 -- how long the index remembers a lock that never expires, since it was last met: a day
local token, lease, waits = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[4]) > 0
local value, known = redis.call('GET', KEYS[1]), read_known(redis.call('GET', KEYS[2]))
local left, wrong = time_left(value, known, ARGV[5])
if wrong then
  return wrong
end
local mine, is_gone = left and is_mine(value, known, token), redis.call('EXISTS', KEYS[3]) == 1
-- Who does not wait is told of the holder all the same, should the first answer have been lost.
if is_gone and (waits or mine or not left) then
  return {'GONE'}
end

if left and not mine then
  if ARGV[4] == '0' and not is_gone then
    -- Given up here and now: a copy of a request that is still on the wire must not take the lock.
    redis.call('SET', KEYS[3], 'left', 'PX', MEMORY)
  end
  local ours = stands(value, known)
  if not ours and not baton_for(value) then
    list(now_ms() + (left < 0 and ENDLESS or math.ceil(left)))
  end
  return {'BUSY', math.ceil(left), 'foreign', ours and known.record}
end

local ends, fence, record = now_ms() + lease, math.max(now_us(), (known.fence or 0) + 1), ARGV[3]
if mine then
  -- The reply to an earlier copy of this request was lost. The lease starts anew, but is not cut: this
  -- copy may be a late one, of a lock that was extended since.
  ends = math.max(ends, known.ends or now_ms() + left)
  if known.token == token then
    fence, record = known.fence, known.record
  end
end
list(ends)
write(token, fence, ends, record, ARGV[5], ARGV[6])
-- What nobody released is forgotten, by one in a hundred; who lacks the right for it goes on.
if KEYS[4] and now_us() % 100 == 0 then
  redis.pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', whole(now_ms() - META_MARGIN))
end
return {'OK', whole(fence)}
