-- Have the lease last so long at the least, if the name is still that token's: for a lock whose slot moves. A script with one
-- key is carried out there, and what else there is of the lock may be at the other node.
-- ARGV and reply as of renew
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'LOST', false}
end
local lease = math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2]))
if ARGV[2] ~= '-1' and lease > 0 then
  redis.call('PEXPIRE', KEYS[1], string.format('%d', lease))
end
return {'OK', lease}
