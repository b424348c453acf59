-- Take the lock: SETNX of the time until which it is valid, or GETSET where the time that stands there is over;
-- in one step, so that nobody comes between reading and replacing it.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token  2 lease ms  3 unit of the value: 's', 'ms'  4 '1' if Redis is to remove the value a second
--       after it is over, else '0'  5 holder record  6 ms until the caller asks again at the latest (0: this
--       caller does not wait, or no longer)
-- Reply {'OK', fence}
--       {'BUSY', ms left, 'foreign', holder record or false}  (foreign also when it is one of ours: nobody is woken)
--       {'GONE'}  this token was released, given up or forced out before
-- Error WRONGTYPE when what the name holds is no time in that unit
--- timestamp
local token, lease, unit, waits = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[6]) > 0
local value = redis.call('GET', KEYS[1])
local known = read_known(redis.call('GET', KEYS[2]))
local left = time_left(value, known, unit)
if not left then
  return no_time(value, unit)
end
local mine = value and is_mine(value, known, token)
local is_gone = redis.call('EXISTS', KEYS[3]) == 1
-- Who does not wait is told of the holder all the same, should the first answer have been lost.
if is_gone and (waits or mine or left <= 0) then
  return {'GONE'}
end

if left > 0 and not mine then
  if not waits and not is_gone then
    -- Given up here and now: a copy of this request that is still on the wire must not take the lock.
    redis.call('SET', KEYS[3], 'left', 'PX', MEMORY)
  end
  local ours = stands(value, known)
  if KEYS[4] and not ours then
    redis.call('ZADD', KEYS[4], whole(now_ms() + math.ceil(left)), KEYS[1])
  end
  return {'BUSY', math.ceil(left), 'foreign', ours and known.record}
end

local ends, record = now_ms() + lease, ARGV[5]
local fence = math.max(now_us(), (known.fence or 0) + 1)
if mine then
  -- The reply to an earlier copy of this request was lost. The lease starts anew, but is not cut: this
  -- copy may be a late one, of a lock that was extended since.
  ends, fence, record = math.max(ends, known.ends), known.fence, known.record
end
write(token, fence, ends, unit, record, ARGV[4], KEYS[4])
-- What nobody released is forgotten, by one in a hundred; who lacks the right for it goes on.
if KEYS[4] and now_us() % 100 == 0 then
  redis.pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', whole(now_ms() - META_MARGIN))
end
return {'OK', whole(fence)}
