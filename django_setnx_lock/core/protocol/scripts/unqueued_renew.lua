-- Give the lease more time if the lock is still mine.
-- ARGV  1 token  2 ms  3 'replace' what is left, have 'least' so much, or add to it: 'add ID', once for each ID
--       4 and 5 of a timestamp: its unit, and whether Redis is to remove it
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
--- unqueued
local token, mark, known = ARGV[1], redis.call('GET', KEYS[3]), known_beside()
local value = text(redis.pcall('GET', KEYS[1]))
if mark or not is_mine(value, known, token) then
  return {'LOST', mark}
end
local ends, record, is_known = now_ms() + ARGV[2], known.record, known.token == token
local before = known.ends or now_ms() + math.max(time_left(value, known), 0)
if ARGV[3] == 'least' then
  ends = math.max(before, ends)
elseif ARGV[3] ~= 'replace' then
  --- adding
  record = is_known and note(ARGV[3], record, record)
  if record == KNOWN then
    return {'OK', before - now_ms()}
  end
  ends = before + ARGV[2]
end
-- As long as whoever took the lock had it, here as well.
local margin = math.max(redis.call('PTTL', KEYS[2]) - math.floor(before - now_ms()), META_MARGIN)
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', KEYS[2], whole(ends - now_ms() + margin))
list(ends)
if is_known then
  write(token, known.fence, ends, record, margin, known.unit, ARGV[5])
else
  redis.call('PEXPIRE', KEYS[1], whole(ends - now_ms()))
end
return {'OK', ends - now_ms()}
