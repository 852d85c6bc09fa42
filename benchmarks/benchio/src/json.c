#include "json.h"

#include <inttypes.h>
#include <math.h>

/* Bytes of the valid UTF-8 sequence at `p` (RFC 3629), 0 if it is none. */
static int sequence(const unsigned char *p) {
    int n = *p < 0xc2 ? 0 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : *p < 0xf5 ? 4 : 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool low = (*p == 0xe0 && p[1] < 0xa0) || (*p == 0xf0 && p[1] < 0x90);
    bool high = (*p == 0xed && p[1] > 0x9f) || (*p == 0xf4 && p[1] > 0x8f);
    return low || high ? 0 : n;
}

static void quoted(FILE *out, const char *text) {
    fputc('"', out);
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        int n = *p < 0x80 ? 1 : sequence(p);
        if (*p == '"' || *p == '\\')
            fprintf(out, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(out, "\\u%04x", *p);
        else if (n == 0)
            fputs("\\ufffd", out);
        for (int i = 0; i < n && *p >= 0x20 && *p != '"' && *p != '\\' && *p != 0x7f; i++)
            fputc(p[i], out);
        p += n > 1 ? n - 1 : 0;
    }
    fputc('"', out);
}

static void begin(struct json *json, const char *key) {
    if (json->occupied)
        fputc(',', json->out);
    if (!json->compact && json->depth > 0)
        fprintf(json->out, "\n%*s", 2 * json->depth, "");
    if (key != NULL) {
        quoted(json->out, key);
        fputs(json->compact ? ":" : ": ", json->out);
    }
    json->occupied = true;
}

void json_open(struct json *json, const char *key, char bracket) {
    begin(json, key);
    fputc(bracket, json->out);
    json->depth++;
    json->occupied = false;
}

void json_close(struct json *json, char bracket) {
    json->depth--;
    if (!json->compact && json->occupied)
        fprintf(json->out, "\n%*s", 2 * json->depth, "");
    fputc(bracket, json->out);
    if (!json->compact && json->depth == 0)
        fputc('\n', json->out);
    json->occupied = true;
}

void json_string(struct json *json, const char *key, const char *value) {
    begin(json, key);
    if (value == NULL)
        fputs("null", json->out);
    else
        quoted(json->out, value);
}

void json_integer(struct json *json, const char *key, int64_t value) {
    begin(json, key);
    fprintf(json->out, "%" PRId64, value);
}

void json_unsigned(struct json *json, const char *key, uint64_t value) {
    begin(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

void json_number(struct json *json, const char *key, double value) {
    begin(json, key);
    if (isfinite(value))
        fprintf(json->out, "%.17g", value);
    else
        fputs("null", json->out);
}

void json_rounded(struct json *json, const char *key, double value) {
    begin(json, key);
    fprintf(json->out, "%.6g", isfinite(value) ? value : 0);
}

void json_bool(struct json *json, const char *key, bool value) {
    begin(json, key);
    fputs(value ? "true" : "false", json->out);
}

void json_null(struct json *json, const char *key) {
    begin(json, key);
    fputs("null", json->out);
}
