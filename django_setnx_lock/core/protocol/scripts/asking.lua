-- What a key beside a lock that is of another type, or a number that no fence can be, would have said is not
-- known: one lock's trouble must not hide the others. Put where a script only looks.
local FENCES = 2 ^ 53

local function ask(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then
    return reply
  end
  -- Any other error is raised.
  return not string.find(tostring(reply.err), 'WRONGTYPE', 1, true) and redis.call(...)
end

