-- Take several locks in the order given: what comes after the first that is not granted is not asked for.
-- KEYS  those of each lock, as acquire has them
-- ARGV  of each lock: how many KEYS are its own, and those of acquire; whether the caller waits
--       is the same for all
-- Reply {'OK', the replies of acquire}  all are granted
--       {'NO', the replies of acquire as far as it went}  the last of them, or {'ERROR', text}, tells why not.
--       Of a caller that does not wait, those granted are given up by then: {'LEFT', waiter that it is handed to,
--       or false} stands there for each
local function acquire(KEYS, ARGV)
--- acquire
end
local function cancel(KEYS, ARGV)
--- cancel
end

local replies, asked, first = {'OK'}, {}, 1
for at = 1, #ARGV, 5 do
  local keys, args = {}, {}
  for _ = 1, tonumber(ARGV[at]) do
    keys[#keys + 1] = KEYS[first]
    first = first + 1
  end
  for number = 1, 4 do
    args[number] = ARGV[at + number]
  end
  -- What one name holds that is no lock must not leave the others taken.
  local has_run, reply = pcall(acquire, keys, args)
  if not has_run then
    -- Before Redis 7 an error is a text.
    reply = {'ERROR', type(reply) == 'table' and reply.err or tostring(reply)}
  end
  asked[#asked + 1] = {keys, args}
  replies[#replies + 1] = reply
  if reply[1] ~= 'OK' then
    replies[1] = 'NO'
    break
  end
end
if replies[1] == 'NO' and tonumber(ARGV[5]) <= 0 then
  for number = 1, #asked - 1 do
    local left = cancel(asked[number][1], {asked[number][2][1], ARGV[5] == '-1' and 'once' or ''})
    replies[number + 1] = {'LEFT', left[2]}
  end
end
return replies
