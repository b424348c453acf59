-- Take several locks in the order given, in one cluster slot, all of them or none: what was free is let go for one that was not.
-- KEYS  of each lock: name, meta   last, if their number is odd: index
-- ARGV  those of acquire for a caller that does not wait, the same for each lock
-- Reply those of acquire, in full, up to the first that is not 'OK'; {'LEFT'}: it was let go. What is 'OK' else the caller lets go.
local function acquire(KEYS, ARGV)
--- acquire
end
local replies, index = {}, #KEYS % 2 == 1 and KEYS[#KEYS] or nil
for at = 1, #KEYS - 1, 2 do
  local reply = acquire({KEYS[at], KEYS[at + 1], index}, ARGV)
  reply = type(reply) ~= 'number' and reply or reply > 0 and {'OK', reply} or {'OK', -reply, 'listed', false}
  replies[#replies + 1] = reply
  if reply[1] ~= 'OK' then
    for before = 1, #replies - 1 do
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
