-- Ask the holder whom the operator saw to stop, and nobody else. The lock stays theirs.
-- ARGV  1 ID of the request, who and why (JSON)  2 token seen
-- Reply {'OK'}  {'BEFORE'} somebody has asked it before  {'CHANGED'} somebody else has it  {'FREE'} nobody has it
--       {'HOSTED'} a holder that never hears of it
--- keys
--- prelude
--- stopping
--- requesting
local value = token_at(NAME)
if not value then
  return {'FREE'}
end
local meta = token_at(META) or ''
local _, owner, record = read_meta(meta)
if value == ARGV[2] and owner == HOSTED .. value then
  return {'HOSTED'}
end
if value ~= ARGV[2] or owner ~= value then
  return {'CHANGED'}
end
local noted = note_stop(meta, record, ARGV[1])
if noted == NOTED_BEFORE then
  return {'BEFORE'}
end
if noted ~= NOTED then
  redis.call('SET', META, noted, 'KEEPTTL')
end
return {'OK'}
