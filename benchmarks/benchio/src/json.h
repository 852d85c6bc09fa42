/* A writer of JSON: keys and values in order, commas and escapes by itself. */
#ifndef BENCHIO_JSON_H
#define BENCHIO_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *out;
    int depth;     /* of open objects and arrays */
    bool compact;  /* no line breaks */
    bool occupied; /* the innermost object or array has a member already */
};

/* `key` is NULL inside an array and at the top. */
void json_open(struct json *json, const char *key, char bracket);
void json_close(struct json *json, char bracket);
void json_string(struct json *json, const char *key, const char *value); /* NULL: null */
void json_integer(struct json *json, const char *key, int64_t value);
void json_unsigned(struct json *json, const char *key, uint64_t value);
void json_number(struct json *json, const char *key, double value);  /* 17 digits; not finite: null */
void json_rounded(struct json *json, const char *key, double value); /* 6 digits, for long arrays */
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);

#endif
