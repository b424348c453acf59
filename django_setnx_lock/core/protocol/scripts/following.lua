-- Put where a script takes the lock.
-- Remember of the owner in meta, whom the caller follows, that it lost the lock, unless it has let go.
local function note_lost(meta, owner)
  if not owner or owner == ARGV[1] or has_let_go(meta) then
    return
  end
  if group_at(owner) then
    for _, token in ipairs(redis.call('ZRANGE', beside('shares', ''), 0, -1)) do
      remember_loss(token)
    end
  elseif string.sub(owner, 1, #HOSTED) ~= HOSTED then
    -- One who polls is told by what stands at the name.
    remember_loss(owner, redis.call('PTTL', META))
  end
end

