-- Take several locks in the order given, in one cluster slot: what comes behind the first that is not to be had is not asked for.
-- KEYS  of each lock: name, meta   last, if their number is odd: index
-- ARGV  those of acquire, the same for each lock
-- Reply the replies of acquire, as far as it went: all are had if as many are 'OK' as were asked for. Of a caller that does not
--       wait, what was free and is let go for another that was not: {'LEFT'}
local function acquire(KEYS, ARGV)
--- acquire
end
local replies, index = {}, #KEYS % 2 == 1 and KEYS[#KEYS] or nil
for at = 1, #KEYS - 1, 2 do
  local reply = acquire({KEYS[at], KEYS[at + 1], index}, ARGV)
  replies[#replies + 1] = reply
  if reply[1] ~= 'OK' then
    for before = 1, ARGV[4] == '0' and #replies - 1 or 0 do
      -- Nobody waits for what was taken the short way.
      if #replies[before] == 2 then
        redis.call('DEL', KEYS[2 * before - 1])
        replies[before] = {'LEFT'}
      end
    end
    break
  end
end
return replies
