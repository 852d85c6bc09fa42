#include "expression.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Deeper than anybody writes, and far from the end of the stack. */
#define DEEPEST 64

enum operation {
    CONSTANT,
    SLOT,
    NEGATE,
    ADD,
    SUBTRACT,
    MULTIPLY,
    DIVIDE,
    REMAINDER,
    POWER,
    LESS,
    LESS_EQUAL,
    GREATER,
    GREATER_EQUAL,
    EQUAL,
    NOT_EQUAL,
    AND,
    OR,
    MINIMUM,
    MAXIMUM
};

struct expression {
    enum operation operation;
    struct expression *left, *right;
    int slot;
    bool whole;
    int64_t integer;
    double real;
};

struct parser {
    const char *at;
    const struct scope *scope;
    int depth;
    char *why;
    size_t n;
};

int scope_push(struct scope *s, const char *name) {
    if (s->n == SCOPE_SLOTS)
        return -1;
    struct slot *slot = &s->slot[s->n];
    *slot = (struct slot){.whole = true};
    snprintf(slot->name, sizeof slot->name, "%s", name);
    return s->n++;
}

int scope_find(const struct scope *s, const char *name, size_t length) {
    for (int i = s->n - 1; i >= 0; i--)
        if (strlen(s->slot[i].name) == length && memcmp(s->slot[i].name, name, length) == 0 && length > 0)
            return i;
    return -1;
}

void scope_set(struct scope *s, int slot, int64_t value) {
    s->slot[slot].whole = true;
    s->slot[slot].integer = value;
    s->slot[slot].real = (double)value;
}

bool expression_reserved(const char *word) {
    static const char *const words[] = {"and",  "or",    "min",  "max",   "true",      "false",     "all",
                                        "rank", "ranks", "node", "nodes", "file_rank", "file_ranks"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], word) == 0)
            return true;
    return false;
}

static struct expression *complain(struct parser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The first complaint is the one that counts. */
static struct expression *complain(struct parser *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (p->why[0] == '\0')
        vsnprintf(p->why, p->n, format, arguments);
    va_end(arguments);
    return NULL;
}

static struct expression *make(struct parser *p, enum operation operation, struct expression *left,
                               struct expression *right) {
    struct expression *e = left == NULL ? NULL : calloc(1, sizeof *e);
    if (e == NULL || (right == NULL && operation != NEGATE)) {
        expression_free(left);
        expression_free(right);
        free(e);
        return complain(p, "no memory");
    }
    *e = (struct expression){.operation = operation, .left = left, .right = right};
    return e;
}

void expression_free(struct expression *e) {
    if (e == NULL)
        return;
    expression_free(e->left);
    expression_free(e->right);
    free(e);
}

static bool is_name(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static void skip(struct parser *p) {
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\n')
        p->at++;
}

/* Take `word` if it is next; a word of letters only as a whole. */
static bool take(struct parser *p, const char *word) {
    size_t n = strlen(word);
    skip(p);
    if (strncmp(p->at, word, n) != 0 || (isalpha((unsigned char)*word) && is_name(p->at[n])))
        return false;
    p->at += n;
    return true;
}

static struct expression *parse_or(struct parser *p);

static struct expression *constant(struct parser *p, bool whole, int64_t integer, double real) {
    struct expression *e = calloc(1, sizeof *e);
    if (e == NULL)
        return complain(p, "no memory");
    *e = (struct expression){.operation = CONSTANT, .whole = whole, .integer = integer, .real = real};
    return e;
}

/* 64, 0.25, 1e-3. */
static struct expression *parse_number(struct parser *p) {
    char *end;
    size_t digits = strspn(p->at, "0123456789");
    if (digits > 1 && p->at[0] == '0')
        return complain(p, "a number begins with 0: '%.20s'", p->at);
    errno = 0;
    double real = strtod(p->at, &end);
    bool whole = end == p->at + digits;
    long long integer = whole ? strtoll(p->at, &end, 10) : 0;
    if (errno != 0 || !isfinite(real))
        return complain(p, "the number '%.30s' is too large", p->at);
    if (is_name(*end) || *end == '.' || p->at[1] == 'x' || p->at[1] == 'X')
        return complain(p, "expected a number, found '%.30s'", p->at);
    p->at = end;
    return constant(p, whole, integer, real);
}

static struct expression *parse_call(struct parser *p, enum operation operation) {
    struct expression *left = take(p, "(") ? parse_or(p) : complain(p, "expected (a, b)");
    struct expression *right = left != NULL && take(p, ",") ? parse_or(p) : NULL;
    if (right == NULL || !take(p, ")")) {
        expression_free(left);
        expression_free(right);
        return complain(p, "expected (a, b) after min or max");
    }
    return make(p, operation, left, right);
}

static struct expression *parse_name(struct parser *p) {
    size_t n = 0;
    while (is_name(p->at[n]))
        n++;
    int slot = scope_find(p->scope, p->at, n);
    if (slot < 0)
        return complain(p, "unknown name '%.*s'", n > NAME_LENGTH ? NAME_LENGTH : (int)n, p->at);
    if (p->scope->slot[slot].text != NULL)
        return complain(p, "'%.*s' is a text, not a number", (int)n, p->at);
    p->at += n;
    struct expression *e = constant(p, false, 0, 0);
    if (e != NULL)
        e->operation = SLOT, e->slot = slot;
    return e;
}

/* `text == word` and `text != word`: known at once. NULL without a complaint: no text is next. */
static struct expression *compare_text(struct parser *p) {
    size_t n = 0, word = 0;
    skip(p);
    while (is_name(p->at[n]))
        n++;
    int slot = scope_find(p->scope, p->at, n);
    const char *text = slot >= 0 ? p->scope->slot[slot].text : NULL, *name = p->at;
    if (text == NULL)
        return NULL;
    p->at += n;
    bool equal = take(p, "==");
    if (!equal && !take(p, "!="))
        return complain(p, "'%.*s' is a text, not a number", (int)n, name);
    skip(p);
    while (is_name(p->at[word]))
        word++;
    if (!isalpha((unsigned char)*p->at))
        return complain(p, "expected a word with which '%.*s' is compared", (int)n, name);
    bool same = strlen(text) == word && memcmp(text, p->at, word) == 0;
    p->at += word;
    return constant(p, true, same == equal, same == equal);
}

static struct expression *parse_atom(struct parser *p) {
    if (take(p, "(")) {
        struct expression *e = parse_or(p);
        if (e == NULL || take(p, ")"))
            return e;
        expression_free(e);
        return complain(p, "a ) is missing");
    }
    if (take(p, "min") || take(p, "max"))
        return parse_call(p, p->at[-1] == 'n' ? MINIMUM : MAXIMUM);
    if (take(p, "true") || take(p, "false"))
        return constant(p, true, p->at[-2] == 'u', p->at[-2] == 'u');
    if (isdigit((unsigned char)*p->at))
        return parse_number(p);
    if (isalpha((unsigned char)*p->at))
        return parse_name(p);
    return *p->at == '\0' ? complain(p, "the expression ends too early")
                          : complain(p, "expected a number or a name, found '%.20s'", p->at);
}

static struct expression *parse_unary(struct parser *p) {
    if (++p->depth > DEEPEST)
        return complain(p, "nested deeper than %d", DEEPEST);
    struct expression *e;
    if (take(p, "-")) {
        e = parse_unary(p);
        e = e != NULL ? make(p, NEGATE, e, NULL) : NULL;
    } else {
        e = parse_atom(p);
        if (e != NULL && take(p, "^")) {
            struct expression *right = parse_unary(p);
            e = make(p, POWER, e, right);
        }
    }
    p->depth--;
    return e;
}

struct level {
    struct {
        const char *text;
        enum operation operation;
    } word[7];
    bool once; /* a < b < c is none */
};

/* From the loosest to the tightest; of two words with the same beginning the longer first. */
static const struct level levels[] = {
    {{{"or", OR}}, false},
    {{{"and", AND}}, false},
    {{{"<=", LESS_EQUAL},
      {"<", LESS},
      {">=", GREATER_EQUAL},
      {">", GREATER},
      {"==", EQUAL},
      {"!=", NOT_EQUAL}},
     true},
    {{{"+", ADD}, {"-", SUBTRACT}}, false},
    {{{"*", MULTIPLY}, {"/", DIVIDE}, {"%", REMAINDER}}, false},
};
#define LEVEL_N (sizeof levels / sizeof *levels)
#define COMPARISON 2

static struct expression *parse_level(struct parser *p, size_t level) {
    struct expression *left = level == COMPARISON ? compare_text(p) : NULL;
    if (left != NULL || p->why[0] != '\0')
        return left;
    left = level == LEVEL_N ? parse_unary(p) : parse_level(p, level + 1);
    bool more = level < LEVEL_N;
    while (left != NULL && more) {
        more = false;
        for (int i = 0; levels[level].word[i].text != NULL && !more; i++)
            if (take(p, levels[level].word[i].text)) {
                left = make(p, levels[level].word[i].operation, left, parse_level(p, level + 1));
                more = true;
            }
        more = more && !levels[level].once;
    }
    return left;
}

static struct expression *parse_or(struct parser *p) {
    if (++p->depth > DEEPEST)
        return complain(p, "nested deeper than %d", DEEPEST);
    struct expression *e = parse_level(p, 0);
    p->depth--;
    return e;
}

struct expression *expression_parse(const char *text, const struct scope *scope, char *why, size_t n) {
    struct parser p = {.at = text, .scope = scope, .why = why, .n = n};
    why[0] = '\0';
    struct expression *e = parse_or(&p);
    skip(&p);
    if (e == NULL || *p.at == '\0')
        return e;
    expression_free(e);
    return complain(&p, "unexpected '%.20s'", p.at);
}

static const char overflow[] = "the value does not fit 64 bits", by_zero[] = "division by zero",
                  not_whole[] = "not a whole number; decimals are for compute and work";

/* Rounds down; `b` is not 0. */
static const char *divide(int64_t a, int64_t b, int64_t *quotient, int64_t *remainder) {
    if (b == 0)
        return by_zero;
    if (a == INT64_MIN && b == -1)
        return overflow;
    *quotient = a / b;
    *remainder = a % b;
    if (*remainder != 0 && (*remainder < 0) != (b < 0)) {
        *remainder += b;
        --*quotient;
    }
    return NULL;
}

static const char *power(int64_t base, int64_t exponent, int64_t *value) {
    if (exponent < 0)
        return "a negative exponent";
    for (*value = 1; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) != 0 && __builtin_mul_overflow(*value, base, value))
            return overflow;
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            return overflow;
    }
    return NULL;
}

static const char *compute(enum operation operation, int64_t a, int64_t b, int64_t *value) {
    int64_t other = 0;
    switch (operation) {
    case ADD:
        return __builtin_add_overflow(a, b, value) ? overflow : NULL;
    case SUBTRACT:
        return __builtin_sub_overflow(a, b, value) ? overflow : NULL;
    case MULTIPLY:
        return __builtin_mul_overflow(a, b, value) ? overflow : NULL;
    case DIVIDE:
        return divide(a, b, value, &other);
    case REMAINDER:
        return divide(a, b, &other, value);
    case POWER:
        return power(a, b, value);
    default:
        *value = operation == LESS            ? a < b
                 : operation == LESS_EQUAL    ? a <= b
                 : operation == GREATER       ? a > b
                 : operation == GREATER_EQUAL ? a >= b
                 : operation == EQUAL         ? a == b
                 : operation == NOT_EQUAL     ? a != b
                 : operation == AND           ? a != 0 && b != 0
                 : operation == OR            ? a != 0 || b != 0
                 : operation == MINIMUM       ? (a < b ? a : b)
                                              : (a > b ? a : b);
        return NULL;
    }
}

const char *expression_integer(const struct expression *e, const struct scope *s, int64_t *value) {
    int64_t a = 0, b = 0;
    if (e->operation == CONSTANT || e->operation == SLOT) {
        const struct slot *slot = &s->slot[e->slot];
        *value = e->operation == SLOT ? slot->integer : e->integer;
        return (e->operation == SLOT ? slot->whole : e->whole) ? NULL : not_whole;
    }
    const char *why = expression_integer(e->left, s, &a);
    if (why != NULL)
        return why;
    if (e->operation == NEGATE)
        return __builtin_sub_overflow((int64_t)0, a, value) ? overflow : NULL;
    if ((e->operation == AND && a == 0) || (e->operation == OR && a != 0)) { /* the right side has no say */
        *value = e->operation == OR;
        return NULL;
    }
    why = expression_integer(e->right, s, &b);
    return why != NULL ? why : compute(e->operation, a, b, value);
}

static double compute_real(enum operation operation, double a, double b) {
    switch (operation) {
    case ADD:
        return a + b;
    case SUBTRACT:
        return a - b;
    case MULTIPLY:
        return a * b;
    case DIVIDE:
        return a / b;
    case REMAINDER:
        return a - b * floor(a / b);
    case POWER:
        return pow(a, b);
    case MINIMUM:
        return fmin(a, b);
    case MAXIMUM:
        return fmax(a, b);
    default:
        return operation == LESS            ? a < b
               : operation == LESS_EQUAL    ? a <= b
               : operation == GREATER       ? a > b
               : operation == GREATER_EQUAL ? a >= b
               : operation == EQUAL         ? a == b
               : operation == NOT_EQUAL     ? a != b
               : operation == AND           ? a != 0 && b != 0
                                            : a != 0 || b != 0;
    }
}

const char *expression_real(const struct expression *e, const struct scope *s, double *value) {
    double a = 0, b = 0;
    const char *why = NULL;
    if (e->operation == CONSTANT || e->operation == SLOT) {
        *value = e->operation == SLOT ? s->slot[e->slot].real : e->real;
        return NULL;
    }
    if ((why = expression_real(e->left, s, &a)) != NULL)
        return why;
    if (e->operation != NEGATE && (why = expression_real(e->right, s, &b)) != NULL)
        return why;
    if (b == 0 && (e->operation == DIVIDE || e->operation == REMAINDER))
        return by_zero;
    *value = e->operation == NEGATE ? -a : compute_real(e->operation, a, b);
    return isfinite(*value) ? NULL : "the value is too large";
}
