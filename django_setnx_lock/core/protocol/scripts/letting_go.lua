-- Note that the token has let the lock go: by a space behind its record in meta, which stays JSON. What meta says of
-- another, which was followed by one that writes no meta, stays as it is. Gives what meta said of the token, or nil.
local function let_go(token)
  local meta = redis.pcall('GET', META)
  local head = type(meta) == 'string' and string.match(meta, '^%d+ %d+ ')
  if head and string.sub(meta, #head + 1, #head + #token + 1) == token .. ' ' then
    redis.call('SET', META, meta .. ' ', 'PX', META_MARGIN)
    return meta
  end
end

--- has_let_go
