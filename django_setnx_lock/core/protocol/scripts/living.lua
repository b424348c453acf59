-- Which processes say that they live? Writes nothing.
-- KEYS  of each process its own, all in one slot
-- Reply of each whether it does, 1 or 0
local found = {}
for number in ipairs(KEYS) do
  found[number] = redis.call('EXISTS', KEYS[number])
end
return found
