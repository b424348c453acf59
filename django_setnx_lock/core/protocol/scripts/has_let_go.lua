-- Whether the one in meta has let the lock go: a space stands behind its record.
local function has_let_go(meta)
  return string.byte(meta, -1) == 32
end
