-- Fence, token and holder record, or nothing when there are none: 'FENCE LENGTH-OF-TOKEN TOKEN RECORD'.
local function read_meta(meta)
  local head, fence, length = string.match(meta or '', '^((%d+) (%d+) )')
  if head then
    return tonumber(fence), string.sub(meta, #head + 1, #head + length), string.sub(meta, #head + length + 2)
  end
end

-- The waiter that the baton is made out to, or nil.
local function baton_for(value)
  if value and string.sub(value, 1, #BATON) == BATON then
    return string.sub(value, #BATON + 1)
  end
end
