-- Put a token in the place of the one by which the lock is held: one that the caller chose, or that
-- of another process which takes the lock over.
-- ARGV  1 the old token  2 the new one, or the same: only the record changes then  3 fence of the lock
--       4 the holder record of who takes it over, or '': that gets the time since when it holds the lock
-- Reply {'OK'}
--       {'LOST', how it was lost (JSON) or false}
--- keys
local NEW_TOMBSTONE = KEYS[6] -- that of the token which is put in the place
--- prelude
local value = token_at(NAME)
local fence, _, holder = read_meta(redis.call('GET', META))
local is_same = ARGV[1] == ARGV[2]
if value == ARGV[2] and not is_same and fence == tonumber(ARGV[3]) then
  -- A copy of a request that was carried out: another lock by this token has another fence.
  return {'OK'}
end
if value ~= ARGV[1] then
  return {'LOST', redis.call('GET', TOMBSTONE)}
end
local record = holder or ''
if ARGV[4] ~= '' then
  record = string.gsub(ARGV[4], '}$', ',"since":' .. whole(now_ms()) .. '}')
end
if not is_same then
  -- What is remembered of an earlier use of the new one says nothing of this one.
  redis.call('DEL', NEW_TOMBSTONE)
  -- A copy of the acquire that is still on the wire must not take the lock once it is free.
  redis.call('SET', TOMBSTONE, 'left', 'PX', MEMORY)
end
redis.call('SET', META, table.concat({ARGV[3], #ARGV[2], ARGV[2], record}, ' '), 'KEEPTTL')
grow(META, redis.call('PTTL', NAME) + META_MARGIN)
redis.call('SET', NAME, ARGV[2], 'KEEPTTL')
return {'OK'}
