-- Let the lock go if it is still mine. Sending it twice is as good as once.
-- ARGV  1 token  2 ''  [3 for how many ms its holder had waited, if the end is to be noted]
-- Reply {'OK', false}
--       {'LOST', how it was lost (JSON) or false, false}
--- unqueued
--- has_let_go
--- history
local mark, meta, known = redis.call('GET', KEYS[3]), text(redis.pcall('GET', KEYS[2])), known_beside()
if not mark and is_mine(text(redis.pcall('GET', KEYS[1])), known, ARGV[1]) then
  -- Deletes first: they are allowed, and make the rest allowed, on a server that is out of memory.
  remove(known)
  unlist()
  redis.call('SET', KEYS[3], 'released', 'PX', MEMORY)
  if KEYS[5] and ARGV[3] and meta then
    redis.pcall('XADD', KEYS[5], entry(KEYS[1], 'released', meta, ARGV[3]))
  end
  return {'OK', false}
end
if not mark then
  if KEYS[5] and known.token == ARGV[1] and not has_let_go(meta) then
    redis.pcall('XADD', KEYS[5], entry(KEYS[1], 'lost', meta, ARGV[3] or ''))
  end
  -- Lost: a copy of the acquire that is still on the wire must not take it again. (Out of memory, it may.)
  redis.pcall('SET', KEYS[3], 'left', 'PX', MEMORY)
end
if mark == 'released' then
  return {'OK', false}
end
return {'LOST', mark, false}
