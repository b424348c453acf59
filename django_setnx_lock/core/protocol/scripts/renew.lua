-- Have the lease last so long at the least, if the lock is still that token's, and list it.
-- ARGV  1 token  2 ms; '0': as long as it does; '-1': change nothing
-- Reply {'OK', ms left (-1: without end)[, holder record in which an operator asks it to stop]}
--       {'LOST', who forced it and why (JSON), or false}
--- lib
local value, group = standing()
local fence, record = fence_of(value, group, token)
if not fence then
  return {'LOST', redis.call('HGET', BESIDE .. 'forced', token)}
end
local lease = math.max(lease_left(group, token), tonumber(ARGV[2]))
if ARGV[2] ~= '-1' and lease > 0 then
  keep(value, group, token, lease)
end
return {'OK', lease, record and string.find(record, ',"stop":{', 1, true) and record or nil}
