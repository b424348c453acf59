-- The kind of group that holds the lock together, or nil.
local function group_at(value)
  return value and (string.match(value, '^(readers:)%d+$') or string.match(value, '^(permits:)%d+$'))
end

-- The kind of group that a waiting token would join, and of how many at most; nothing if it wants the lock alone.
local function group_of(token)
  if string.sub(token, 1, 5) == 'read:' then
    return READERS
  end
  local limit = string.match(token, '^permit:(%d+):')
  if limit then
    return PERMITS, tonumber(limit)
  end
end

