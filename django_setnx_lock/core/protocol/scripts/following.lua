-- Put where a script takes the lock, after noting.lua.
-- Remember of the owner in meta, whom the caller follows, that it lost the lock, unless it has let go.
local function note_lost(meta, owner)
  local is_followed = owner and owner ~= ARGV[1] and not has_let_go(meta)
  if not is_followed then
    return
  end
  if group_at(owner) then
    for _, token in ipairs(redis.call('ZRANGE', beside('shares', ''), 0, -1)) do
      note_share_over(token)
      remember_loss(token)
    end
    return
  end
  -- For as long as its lease would have lasted, and a while: not for as long as its name is kept. One who polls is told
  -- by what stands at the name.
  local is_polling = string.sub(owner, 1, #POLLING) == POLLING
  if is_polling or remember_loss(owner, redis.call('PTTL', META) - ARGV[5]) then
    -- The lease of the last holder is in the index still.
    local how, over = how_over(INDEX and redis.pcall('ZSCORE', INDEX, NAME), now_ms())
    note_end(how, meta, over)
  end
end

