-- Give the lease more time, by a later value, if the lock is still mine and not over.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token  2 ms  3 'replace' what is left, have 'least' so much, or add to it: 'add ID', once for each ID
--       4 '1' if Redis is to remove the value a second after it is over, else '0'
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
--- timestamp
local mark, known = redis.call('GET', KEYS[3]), read_known(redis.call('GET', KEYS[2]))
if mark or not is_mine(value_at(KEYS[1]), known, ARGV[1]) then
  return {'LOST', mark}
end
local ends, record = now_ms() + ARGV[2], known.record
if ARGV[3] == 'least' then
  ends = math.max(known.ends, ends)
elseif ARGV[3] ~= 'replace' then
  --- adding
  record = note(ARGV[3], record, record)
  if record == KNOWN then
    return {'OK', known.ends - now_ms()}
  end
  ends = known.ends + ARGV[2]
end
-- First a write that is allowed: it makes the rest allowed, on a server that is out of memory.
redis.call('PEXPIRE', KEYS[2], whole(math.max(ends - now_ms() + META_MARGIN, redis.call('PTTL', KEYS[2]))))
write(ARGV[1], known.fence, ends, known.unit, record, ARGV[4], KEYS[4])
return {'OK', ends - now_ms()}
