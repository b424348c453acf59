--- history
-- Note how a hold of this lock ended, in the history beside the index.
local function note_end(how, known, more)
  if INDEX and HISTORY ~= '0' then
    local key = string.gsub(INDEX, ':index$', '') .. ':history'
    redis.pcall('XADD', key, entry(NAME, how, known, more))
  end
end

-- So of one of several who held it together, as long as it is known who that is.
local function note_share(how, token, more)
  local found = INDEX and redis.call('HGET', beside('holders', ''), token)
  local own, record = string.match(found or '', '^(%d+) (.*)$')
  if own then
    note_end(how, table.concat({own, #token, token, record}, ' '), more)
  end
end

-- So of one whose share was let go by nobody. Not if the loss is remembered: then it was noted.
local function note_share_over(token)
  if redis.call('EXISTS', beside('gone:', token)) == 0 then
    local how, over = how_over(redis.call('ZSCORE', beside('shares', ''), token), now_ms())
    note_share(how, token, over)
  end
end

