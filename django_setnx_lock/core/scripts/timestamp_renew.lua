-- Give the lease more time, by a later value, if the lock is still mine and not over.
-- KEYS  1 name  2 meta  3 gone (this token's)  [4 index]
-- ARGV  1 token  2 ms  3 'replace' what is left, 'add' to it, or have 'least' so much
--       4 '1' if Redis is to remove the value a second after it is over, else '0'
-- Reply {'OK', ms the lease now has}
--       {'LOST', how it was lost (JSON) or false}
--- timestamp
local known = read_known(redis.call('GET', KEYS[2]))
if not is_mine(value_at(KEYS[1]), known, ARGV[1]) then
  return {'LOST', redis.call('GET', KEYS[3])}
end
local ends = now_ms() + ARGV[2]
if ARGV[3] == 'add' then
  ends = known.ends + ARGV[2]
elseif ARGV[3] == 'least' then
  ends = math.max(known.ends, ends)
end
write(ARGV[1], known.fence, ends, known.unit, known.record, ARGV[4], KEYS[4])
return {'OK', ends - now_ms()}
